"""Tool: an interface, told as a JSON Schema (DESIGN 2, 4.2)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError, ToolDefinitionError
from ideabridge.tools.identity import ToolChangedError, differences, digest, essence_of

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
"""Exactly the names a Call keeps for itself (DESIGN 4.2); any other underscore is an ordinary parameter."""

ANONYMOUS: Final = "anonymous"
"""The `_module` of a clean room (DESIGN 4.10)."""

EVERY_MODULE: Final = "*"
"""In `Tool.reaches`: every module."""

IDEA: Final = "idea:"
"""How the `_module` of an idea begins: `idea:weekly_report`, `idea:weekly_report@3`."""

QUERY_FORMAT: Final = "jmespath"
"""The `format` of a parameter that is a JMESPath expression: a constant one is checked before anything runs."""

ToolKey = tuple[str | None, str]
"""(module or None for here, name): what a Tool is known by."""


@dataclass(frozen=True, slots=True)
class Annotations:
    """What a tool says of its own behaviour (MCP `ToolAnnotations`). `None`: it does not say.

    They are hints from whoever wrote the tool; approval policies decide how far to believe them.
    """

    title: str | None = None
    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None

    def to_json(self) -> JSONObject:
        """The annotations by their MCP names; what is not said is left out."""
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
        """The annotations from their MCP names; what is not a boolean (or, for the title, text) counts as not said."""

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
        """Whether a call in flight at a crash may simply be run again (DESIGN 7)."""
        return self.read_only is True or self.idempotent is True


@dataclass(frozen=True, slots=True)
class Tool:
    """An interface: a name, a JSON Schema of parameters, and what comes back.

    Attributes:
        name: the name in `_tool`.
        description: what it does, for a mind and for people.
        parameters: JSON Schema (2020-12) of an object; no property is a meta-property.
        output: JSON Schema of the result, or None where the tool does not say.
        annotations: see `Annotations`.
        module: the configured server or idea it belongs to (`_module`); None for here.
        remote_name: its name at the module where that differs (a name that collided was prefixed).
        renamed: parameter names of ours -> the module's, where a meta-property's name was taken.
        activity: name of the Activity that runs it; None: the one of the same name, or latent.
        clean: its calls are answered in a clean room, by its code or a mind (see `with_fixed`).
        reaches: the modules that a call of it may touch, where that is not its own module alone: "" for own tools,
            `EVERY_MODULE`, or none at all. The order of effects goes by it; the definition told to others does not
            have it.
        wrapper: the output schema as the module declares it, where that is `{"result": output}` only because the
            protocol wants an object: the value of a call is what stands in `result`. None: it is no wrapper.
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
        """The modules that a call of it may touch; "" for own tools."""
        if self.reaches is not None:
            return self.reaches
        return (EVERY_MODULE,) if self.in_room else (self.module or "",)

    @property
    def in_room(self) -> bool:
        """Whether a call of it opens a room: a run of its own, for an idea or an anonymous task (DESIGN 4.10)."""
        return self.module is not None and (self.module == ANONYMOUS or self.module.startswith(IDEA))

    @property
    def key(self) -> ToolKey:
        """(module, name)."""
        return (self.module, self.name)

    @property
    def origin(self) -> ToolKey:
        """(module, its name there), under whatever name it is offered. Of an idea, without its version."""
        return (self.module, self.name if self.in_room or self.remote_name is None else self.remote_name)

    @property
    def essence(self) -> JSONObject:
        """What a call of it relies on; see `essence_of`. The hints of an idea are not in it: they are those of its
        calls, each of which means one tool itself.
        """
        hints: JSONObject = {} if self.in_room else dataclasses.replace(self.annotations, title=None).to_json()
        return essence_of(self.module or "", self.origin[1], self.parameters, self.wrapper or self.output, hints)

    @property
    def digest(self) -> str:
        """SHA-256 of its essence: where it differs, it is not the tool that was meant. Computed once."""
        return self._both_digests()[0]

    @property
    def prose_digest(self) -> str:
        """SHA-256 of everything that is told of it, prose included. Computed once."""
        return self._both_digests()[1]

    def _both_digests(self) -> list[str]:
        if not self._digests:
            essence = self.essence
            told: JSONObject = {"description": self.description, "title": self.annotations.title}
            if self.in_room:
                told["version"] = self.remote_name
            told |= {"essence": essence, "parameters": self.parameters, "output": self.wrapper or self.output}
            self._digests.extend((digest(essence), digest(told)))
        return self._digests

    def expect_same(self, then: Tool) -> None:
        """Do nothing where this is the tool that `then` was.

        Raises:
            ToolChangedError: it is another one; the message shows the difference.
        """
        if self is not then and self.digest != then.digest:
            lines = "; ".join(differences(then.essence, self.essence))
            raise ToolChangedError(f"{self.label} has changed since the run began, and was not called: {lines}")

    @property
    def label(self) -> str:
        """`module.name`, by its name there; of a tool of this process, its name."""
        module, name = self.origin
        return f"{module}.{name}" if module is not None and not self.in_room else str(module or name)

    def to_json(self) -> JSONObject:
        """The definition as JSON: what fingerprints, ideas and `search_tools` hold."""
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
    # Compiling schemas takes a library that reading tools does not.
    from ideabridge.tools.schema import check_schema

    for schema, part in ((tool.parameters, "parameters"), (tool.output, "output")):
        try:
            if schema is not None:
                check_schema(schema, what=f"tool {tool.name!r}, {part}")
        except IdeabridgeError as error:
            raise ToolDefinitionError(str(error)) from None
