"""The interface of a function as JSON Schemas (`Tool`), and the code behind it (`Activity`).

A call refers to one tool: a server, a name and a definition. The *essence* of a definition consists
of the parts that a call relies on: server, name, schemas and behaviour hints. If the essence
changes, the tool counts as a different tool, and a call that was approved before the change does
not run. The other parts are prose, which can change and can differ between machines: descriptions,
titles, and schema keywords that do not constrain values.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeGuard, cast
from urllib.parse import unquote

from ideabridge.tools.encoding import JSON, JSONObject, content_hash
from ideabridge.tools.errors import IdeabridgeError, ToolDefinitionError
from ideabridge.tools.json_parts import with_sorted_keys
from ideabridge.tools.keywords import (
    ANNOTATIONS,
    Place,
    map_schemas,
    references_in,
    show,
    show_path,
)
from ideabridge.tools.message import DataMessage

_SETS: Final = frozenset({"required", "enum", "type"})
"""Keywords whose arrays are sets. Some servers list the members in a different order each time they
start.
"""

_MAX_DIFFERENCES: Final = 12


class ToolChangedError(IdeabridgeError):
    """Raised when the definition of a tool has changed since a call was written. The message shows
    the difference.
    """

    outcome = "not_run"


def _digest(value: JSON) -> str:
    """Return the SHA-256 of a value, regardless of the order of its keys."""
    return content_hash(with_sorted_keys(value))


def _constraints(schema: JSONObject) -> JSON:
    """Return the schema without annotation keywords, or unchanged if a reference in it points into
    such a keyword.
    """
    steps = (step for target in references_in(schema) for step in unquote(target).split("/"))
    if any(map(_is_annotation, steps)):
        return schema
    return map_schemas(schema, _own_constraints)


def _is_annotation(keyword: str) -> bool:
    # `default` also counts as an annotation: it only says what the server does without a value,
    # which the server can change at any time.
    return keyword in ANNOTATIONS or keyword.startswith("x-")


def _own_constraints(schema: JSONObject) -> JSONObject:
    return {
        keyword: sorted(value, key=_digest)
        if keyword in _SETS and isinstance(value, list)
        else value
        for keyword, value in schema.items()
        if not _is_annotation(keyword)
    }


def changes_of_essence(then: JSON, now: JSON) -> list[str]:
    """Return up to 12 lines that describe the differences between two essences.

    For example: `readOnlyHint: was true, now absent`.
    """
    lines = [
        f"{show_path(place)}: was {was}, now {is_now}"
        for place, was, is_now in _differences(then, now, ())
    ]
    if len(lines) > _MAX_DIFFERENCES:
        lines[_MAX_DIFFERENCES - 1 :] = [f"and {len(lines) - _MAX_DIFFERENCES + 1} more"]
    return lines


def _differences(then: JSON, now: JSON, place: Place) -> Iterator[tuple[Place, str, str]]:
    if isinstance(then, dict) and isinstance(now, dict):
        for key in dict.fromkeys((*then, *now)):
            if key in then and key in now:
                yield from _differences(then[key], now[key], (*place, key))
            else:
                was, is_now = (show(part[key]) if key in part else "absent" for part in (then, now))
                yield (*place, key), was, is_now
    elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        for index, (before, after) in enumerate(zip(then, now, strict=True)):
            yield from _differences(before, after, (*place, index))
    elif _digest(then) != _digest(now):
        yield place, show(then), show(now)


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
"""The reserved names in a call. Any other name that begins with an underscore is an ordinary
parameter.
"""

ANONYMOUS: Final = "anonymous"
"""The `_module` of a call in a clean room."""

EVERY_MODULE: Final = "*"
"""The entry of `Tool.reaches` that means all servers."""

IDEA: Final = "idea:"
"""Prefix of the `_module` of a published idea: `idea:weekly_report`, `idea:weekly_report@3`."""


def is_idea(module: str | None) -> TypeGuard[str]:
    """Return whether a `_module` names a published idea."""
    return module is not None and module.startswith(IDEA)


QUERY_FORMAT: Final = "jmespath"
"""The `format` of a parameter that is a JMESPath expression. A constant expression is checked
before anything runs.
"""

ToolKey = tuple[str | None, str]
"""The (module, name) of a tool. The module is None for a tool of this process."""

PROGRAM_STEP: Final[ToolKey] = (ANONYMOUS, "run_program")
"""The tool that runs a program as a single call in a plan, in a clean room."""

HINTS: Final = {
    "read_only": "readOnlyHint",
    "destructive": "destructiveHint",
    "idempotent": "idempotentHint",
    "open_world": "openWorldHint",
}
"""The behaviour hints of `Annotations`, with their names in MCP."""


@dataclass(frozen=True, slots=True)
class Annotations:
    """The behaviour hints that a tool declares (`ToolAnnotations` of MCP). A hint is None if it is
    not declared.

    These hints come from the author of the tool. Approval policies decide which hints to trust.
    """

    title: str | None = None
    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None

    def to_json(self) -> JSONObject:
        """Return the declared annotations under their MCP names."""
        title: JSONObject = {} if self.title is None else {"title": self.title}
        flags = {name: getattr(self, field) for field, name in HINTS.items()}
        return title | {name: flag for name, flag in flags.items() if flag is not None}

    @classmethod
    def from_json(cls, value: JSONObject) -> Annotations:
        """Read annotations by their MCP names. A value of the wrong type counts as not declared."""
        title = value.get("title")
        flags = {
            field: flag
            for field, name in HINTS.items()
            if isinstance(flag := value.get(name), bool)
        }
        return cls(title if isinstance(title, str) else None, **flags)

    @property
    def declares_effects(self) -> bool:
        """True if the tool explicitly declares that it is not read-only."""
        return self.read_only is False or (self.read_only is None and self.destructive is True)

    @property
    def repeatable(self) -> bool:
        """True if a call can be sent again after its server did not respond, or after a crash while
        it was running. This is so if the tool declares itself read-only or idempotent.
        """
        return self.read_only is True or self.idempotent is True


@dataclass(frozen=True, slots=True)
class SentSchema:
    """A schema as a server sent it, if another schema is used instead.

    Attributes:
        schema: any JSON value, or `{"sha256": ...}` if what the server sent is not JSON or is too
            large to store.
        was_valid: whether the original schema is valid. If so, the schema in use has the same
            meaning, expressed in 2020-12.
    """

    schema: JSON
    was_valid: bool


@dataclass(frozen=True, slots=True)
class Tool:
    """An interface: a name, a JSON Schema of the parameters, and a JSON Schema of the result.

    Attributes:
        name: the name in `_tool`.
        parameters: the JSON Schema (2020-12) of an object without properties named like
            meta-properties.
        output: the JSON Schema of the result, or None if the tool declares none.
        module: the configured server or the published idea that provides it (`_module`), or None
            for a tool of this process.
        remote_name: the tool's name on its server, if it differs because a prefix was added to
            avoid a collision. For a published idea, this is NAME@VERSION.
        renamed: a mapping from the new name of each parameter that had the name of a meta-property
            to the server's name for it.
        activity: the name of the Activity that runs the tool's calls. None means the Activity with
            the tool's name, if it exists.
        sent_hints: hints that the server sent as something other than true or false. They are not
            treated as hints here, but they are part of the definition: the essence contains the
            hint itself if the SDK accepts the value as a hint, and otherwise its fingerprint.
        clean: whether its calls are answered in a clean room, by code or a mind (see `with_fixed`).
        passes_to: the tool that answers the calls, if the definition names one: a tool of a server,
            a published idea, or code of this process. The other tool's hints, and the rules for it,
            apply to the calls.
        defaults: for a server's tool that the user's configuration changes, the values of the
            parameters that a call omits. In this case, `passes_to` is the tool as its server lists
            it, and a call is turned into a call to that tool before anything else happens. None for
            any other tool.
        reaches: the servers that a call can touch, if they differ from the tool's own server: ""
            for own tools, `EVERY_MODULE`, or empty if a call touches no server. The order of
            effects depends on these servers. They are not part of the published definition.
        wrapper: the output schema as the server declares it, if it is `{"result": output}` only
            because the protocol requires an object. The value of a call is then the value of
            `result`. None if the schema is not a wrapper.
        sent_parameters: the schema of the parameters as the server sent it, if it differs from
            `parameters`. Digests are computed from the sent schema, so that a repaired definition
            never has the same digest as another definition.
        sent_output: the output schema as the server sent it, if it differs from `output`.
        wire: the other members of the tool's definition, unchanged, for hosts: title, annotations,
            icons, execution and `_meta`. They are not part of the published definition.
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
    sent_hints: JSONObject | None = None
    clean: bool = False
    passes_to: Tool | None = None
    defaults: JSONObject | None = None
    reaches: tuple[str, ...] | None = field(default=None, compare=False)
    wrapper: JSONObject | None = None
    sent_parameters: SentSchema | None = None
    sent_output: SentSchema | None = None
    wire: JSONObject | None = field(default=None, compare=False, repr=False)
    _digests: list[str] = field(default_factory=list[str], init=False, compare=False, repr=False)

    @property
    def reached(self) -> tuple[str, ...]:
        """The servers that a call can touch. "" stands for ideabridge's own tools."""
        if self.reaches is not None:
            return self.reaches
        return (EVERY_MODULE,) if self.in_room else (self.module or "",)

    @property
    def in_room(self) -> bool:
        """True if a call opens a room, which is a separate run for an idea or an anonymous task."""
        return self.module == ANONYMOUS or is_idea(self.module)

    @property
    def asks_mind(self) -> bool:
        """True if a call is a task for a mind in a clean room."""
        return self.module == ANONYMOUS and self.key != PROGRAM_STEP

    @property
    def is_changed(self) -> bool:
        """True if this is a server's tool that the user's configuration changes."""
        return self.defaults is not None

    @property
    def real(self) -> Tool:
        """The tool that a call reaches: if the configuration changes this tool, the one that the
        server lists, and this tool itself otherwise.
        """
        if self.passes_to is None or self.defaults is None:
            return self
        return self.passes_to

    @property
    def key(self) -> ToolKey:
        """The server and the name, which together identify the tool."""
        return (self.module, self.name)

    @property
    def name_in_module(self) -> str:
        """The tool's name on its server (`remote_name`)."""
        return self.remote_name or self.name

    @property
    def origin(self) -> ToolKey:
        """The server, and the tool's name on that server. For an idea, the name has no version."""
        if self.passes_to is not None and self.module is not None:
            return self.passes_to.origin
        return (
            self.module,
            self.name if self.in_room or self.remote_name is None else self.remote_name,
        )

    @property
    def essence(self) -> JSONObject:
        """The parts that a call relies on, as an object with sorted keys: `{"module", "name",
        HINT..., "parameters", "output"}`.

        The server is "" for a tool of this process. An idea contributes no hints, because the tools
        that it calls have their own. A tool that passes its calls to a server's tool has that
        tool's essence.
        """
        if self.passes_to is not None and self.module is not None:
            return self.passes_to.essence

        essence: JSONObject = {"module": self.module or "", "name": self.origin[1]}
        if not self.in_room:
            essence |= replace(self.annotations, title=None).to_json()
            essence |= self._hints_as_sent()

        essence |= _essence_of("parameters", self.parameters, self.sent_parameters)
        if self._has_valid_output:
            essence |= _essence_of("output", self.wrapper or self.output, self.sent_output)

        return cast("JSONObject", with_sorted_keys(essence))

    @property
    def _has_valid_output(self) -> bool:
        """True if the digest includes the output schema, and False if the server sent an invalid
        one.
        """
        return self.sent_output is None or self.sent_output.was_valid

    def _hints_as_sent(self) -> JSONObject:
        sent = self.sent_hints or {}
        odd: JSONObject = {name: hint for name, hint in sent.items() if not isinstance(hint, bool)}
        hints: JSONObject = {name: hint for name, hint in sent.items() if isinstance(hint, bool)}
        if odd:
            hints["hintsAsSent"] = odd
        return hints

    @property
    def digest(self) -> str:
        """The SHA-256 of the essence, computed only once."""
        return self._both_digests()[0]

    @property
    def prose_digest(self) -> str:
        """The SHA-256 of the whole definition, including prose. It is computed only once."""
        return self._both_digests()[1]

    def _both_digests(self) -> list[str]:
        if self.passes_to is not None and self.module is not None:
            return self.passes_to._both_digests()

        if not self._digests:
            essence = self.essence
            whole: JSONObject = {"description": self.description, "title": self.annotations.title}
            if self.in_room:
                whole["version"] = self.remote_name

            whole |= {
                "essence": essence,
                "parameters": _sent_or(self.parameters, self.sent_parameters),
                "output": None,
            }
            if self._has_valid_output:
                whole["output"] = _sent_or(self.wrapper or self.output, self.sent_output)

            # The keys of the essence are already sorted, so it does not need `_digest`.
            self._digests.extend((content_hash(essence), _digest(whole)))

        return self._digests

    def expect_same(self, then: Tool) -> None:
        """Check that the essence equals that of `then`.

        Raises:
            ToolChangedError: the essences differ; the message shows the differences.
        """
        if self is not then and self.digest != then.digest:
            lines = "; ".join(changes_of_essence(then.essence, self.essence))
            raise ToolChangedError(
                f"{self.label} has changed since the run began, so it was not called: {lines}"
            )

    @property
    def label(self) -> str:
        """The name for people: `module.name`, with the server's own name for the tool, or only the
        name for a tool of this process.
        """
        module, name = self.origin
        if module is not None and not self.in_room:
            return f"{module}.{name}"
        return str(module or name)

    def to_json(self) -> JSONObject:
        """Return the definition as JSON, without `wire`, for fingerprints, ideas and
        `search_tools`.
        """
        parts: JSONObject = {
            "name": self.name,
            "module": self.module,
            "description": self.description,
            "parameters": self.parameters,
            "output": self.output,
            "annotations": self.annotations.to_json() or None,
            "sentHints": self.sent_hints,
            "remoteName": self.remote_name,
            "renamed": dict[str, JSON](self.renamed) or None,
            "activity": self.activity,
            "clean": self.clean or None,
            "passesTo": None if self.passes_to is None else self.passes_to.to_json(),
            "defaults": self.defaults,
            "wrapper": self.wrapper,
            "sentParameters": _sent_to_json(self.sent_parameters),
            "sentOutput": _sent_to_json(self.sent_output),
        }
        return {name: part for name, part in parts.items() if part is not None}

    @classmethod
    def from_json(cls, value: JSONObject) -> Tool:
        """Read a Tool written by `to_json`, for example from a journal. Do not use this for
        external data.
        """
        stored: dict[str, Any] = value
        passes_to = stored.get("passesTo")
        return cls(
            name=stored["name"],
            description=stored["description"],
            parameters=stored["parameters"],
            output=stored.get("output"),
            annotations=Annotations.from_json(stored.get("annotations", {})),
            sent_hints=stored.get("sentHints"),
            module=stored.get("module"),
            remote_name=stored.get("remoteName"),
            renamed=stored.get("renamed", {}),
            activity=stored.get("activity"),
            clean=stored.get("clean", False),
            passes_to=None if passes_to is None else cls.from_json(passes_to),
            defaults=stored.get("defaults"),
            reaches=None if stored.get("reaches") is None else tuple(stored["reaches"]),
            wrapper=stored.get("wrapper"),
            sent_parameters=_sent_from_json(stored.get("sentParameters")),
            sent_output=_sent_from_json(stored.get("sentOutput")),
            wire=stored.get("wire"),
        )


def _essence_of(part: str, schema: JSONObject | None, sent: SentSchema | None) -> JSONObject:
    """Return the part of the essence for one schema. A malformed schema has a different key, so
    that its part never equals that of a valid schema.
    """
    if sent is None:
        return {} if schema is None else {part: _constraints(schema)}
    name = part if sent.was_valid else f"{part}AsSent"
    return {name: _constraints(sent.schema) if isinstance(sent.schema, dict) else sent.schema}


def _sent_or(schema: JSONObject | None, sent: SentSchema | None) -> JSON:
    return schema if sent is None else sent.schema


def _sent_to_json(sent: SentSchema | None) -> JSON:
    if sent is None:
        return None
    return {"schema": sent.schema, "valid": sent.was_valid}


def _sent_from_json(stored: Any) -> SentSchema | None:
    return None if stored is None else SentSchema(stored["schema"], stored["valid"])


Order = Literal["effects", "all", "none"]
"""Which calls wait for the calls listed before them. `effects`: within one server and instance, a
call that might change something waits for all calls before it, and a read waits for the changes
before it. `all`: every call waits for all calls before it. `none`: no call waits.
"""


def check_definition(tool: Tool) -> None:
    """Check the schemas of a tool.

    Raises:
        ToolDefinitionError: a schema is invalid; the message says where, what was found and what
            was expected.
    """
    # Import this only when it is needed, because programs that only read tools do not need the
    # validator.
    from ideabridge.tools.schema import check_schema

    for schema, part in ((tool.parameters, "parameters"), (tool.output, "output")):
        try:
            if schema is not None:
                check_schema(schema, what=f"tool {tool.name!r}, {part}")
        except IdeabridgeError as error:
            raise ToolDefinitionError(str(error)) from None


class ActivityContext(Protocol):
    """Gives a running activity access to its run.

    Each execution of a Call has a context. A function receives it through a parameter that is
    annotated with this type.
    """

    @property
    def call(self) -> JSONObject:
        """The Call, with its references resolved."""
        ...

    @property
    def instance(self) -> str | None:
        """The instance of the Call (`_instance`), or None if it has none."""
        ...

    @property
    def output_paths(self) -> tuple[str, ...]:
        """The paths in `_outputPath`, in order. Empty if the result can only be read at
        `†results.N`.
        """
        ...

    async def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Report progress in any unit (MCP progress)."""
        ...

    def add_message(self, message: JSONObject) -> None:
        """Add a typed message to the context of the next Request of this run.

        Raises:
            ActivityError: all calls in the Solution have ended, so the next Request already exists.
                This can happen if an activity uses its context after it has returned, or leaves a
                thread running.
        """
        ...

    def choose(self, path: str) -> None:
        """Write the result to `path` if `_outputPath` is `p || q`. The path must be one of
        `output_paths`.
        """
        ...


ActivityFunction: TypeAlias = Callable[
    [JSONObject, ActivityContext], "Awaitable[JSON | DataMessage[Any]]"
]
"""Code that takes the parameters (without meta-properties and with references resolved) and the
context. It returns the result, or a `DataMessage` whose data is the result. If it raises an
exception, the call fails.
"""


@dataclass(frozen=True, slots=True)
class Activity:
    """Named code, to which tools and calls refer by name.

    Attributes:
        name: the name of the activity, which runs calls to the Tool with the same name.
        copies: whether the activity does not keep its arguments and returns a new JSON value, so
            that the bridge need not copy them.
    """

    name: str
    run: ActivityFunction
    copies: bool = False


DEFINITION: Final = "__ideabridge__"
"""The attribute that stores the Definition of a decorated function."""


@dataclass(frozen=True, slots=True)
class Definition:
    """The Tool and the Activity defined by one function."""

    tool: Tool
    activity: Activity


def definition_of(item: object) -> Definition | None:
    """Return the Definition of a decorated function, or None for anything else."""
    definition = getattr(item, DEFINITION, None)
    return definition if isinstance(definition, Definition) else None
